//! Slots that are not on record, wishes that are old, and disks that are full.

use super::*;

fn doubt(case: &Case, why: &str) -> Doubt {
    Doubt { generation: Generation::new(1), why: why.to_owned(), looked: case.monotonic }
}

/// The record that adopting a slot puts down.
fn adopted(case: &Case) -> SlotRecord {
    match case.actions().as_slice() {
        [Action::Adopt(record)] => (**record).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slot_that_is_not_on_record_is_looked_for_before_anything_is_done_about_it() {
    for asked in [RUN, STOP, ACCOUNT] {
        let wanted = slot(1, asked, "GPU-a", 40);
        let case = Case::new(vec![wanted.clone()]);
        assert_eq!(case.first_actions(), vec![Action::Search(Box::new(wanted))]);
    }
}

#[test]
fn r8_a_slot_of_which_there_is_no_trace_is_gone_with_what_was_seen() {
    for (asked, why) in [(ACCOUNT, SlotEnd::NoTrace), (STOP, SlotEnd::Asked)] {
        let wanted = slot(1, asked, "GPU-a", 40);
        let case = Case::new(vec![wanted.clone()]);
        let row = SlotRecord::of(&wanted, gone(why));
        assert_eq!(case.actions(), vec![Action::RecordAbsence(Box::new(row.clone()))]);
        assert_eq!((row.spec.clone(), row.gpus.len()), (None, 1), "its devices are known, how it was run is not");
        let case = case.keep_row(row);
        assert_eq!(case.actions(), vec![], "it is said until the server no longer asks");
    }
    assert!(
        Action::RecordAbsence(Box::new(SlotRecord::of(&slot(1, ACCOUNT, "GPU-a", 1), gone(SlotEnd::NoTrace))))
            .needs_fresh_observation()
    );
}

#[test]
fn r8_what_the_driver_does_not_rule_out_is_unknown_and_concludes_nothing() {
    for trace in [
        SearchResult::NotFound { doubt: Some("the driver does not answer for GPU-a".to_owned()) },
        SearchResult::Unknown("the driver does not answer for GPU-a".to_owned()),
    ] {
        assert!(!trace.evidence().is_proof());
        for asked in [ACCOUNT, STOP] {
            let case = Case::new(vec![slot(1, asked, "GPU-a", 40)]).find(1, trace.clone());
            let doubt = doubt(&case, "the driver does not answer for GPU-a");
            assert_eq!(case.actions(), vec![Action::NoteDoubt(id(1), doubt.clone())]);
            let mut noted = Case { searched: BTreeMap::new(), ..case };
            noted.doubts.insert(id(1), doubt);
            assert_eq!(noted.actions(), vec![], "it is not looked for all the time");
            let again = noted.later(Doubt::LOOK_AGAIN);
            assert!(matches!(again.first_actions().as_slice(), [Action::Search(_)]), "but again a little later");
        }
    }
    assert_eq!(SearchResult::NotFound { doubt: None }.evidence(), Evidence::COMPLETE);
    let seen = SearchResult::NotFound { doubt: Some(String::new()) }.evidence();
    assert_eq!(seen, Evidence { tree_gone: true, driver_clear: false }, "what was not seen is not claimed");
    assert_eq!(SearchResult::Unknown(String::new()).evidence(), Evidence { tree_gone: false, driver_clear: false });
}

#[test]
fn r8_a_slot_that_is_found_is_adopted_and_not_stopped_for_being_asked_about() {
    let wanted = slot(1, ACCOUNT, "GPU-a", 40);
    let case = Case::new(vec![wanted.clone()]).find(1, found_start(1, Some(WorkloadKind::Job)));
    let row = adopted(&case);
    assert_eq!((row.process.clone(), row.kind, row.spec.clone()), (Some(process()), Some(WorkloadKind::Job), None));
    assert_eq!((row.gpus.clone(), row.state.clone()), (wanted.gpus.clone(), started(true)));
    let record = Case::new(vec![wanted]).keep_row(row.clone()).see(1, alive(Health::Ready));
    assert_eq!(record.actions(), vec![]);
    // A stop is another matter.
    let stopped = Case::new(vec![slot(1, STOP, "GPU-a", 40)]).keep_row(row).see(1, alive(Health::Ready));
    assert_eq!(stopped.actions(), vec![Action::Term(id(1), SlotEnd::Asked)]);
}

#[test]
fn to_be_asked_about_ends_no_slot_whatever_its_generation() {
    for state in [LocalState::Planned, started(false), started(true)] {
        for asked in [slot(1, ACCOUNT, "GPU-a", 40), newer(slot(1, ACCOUNT, "GPU-a", 40))] {
            let case = Case::new(vec![asked]).keep(&slot(1, RUN, "GPU-a", 40), state.clone());
            let ends = |action: &Action| !matches!(action, Action::NoteProcess(..));
            let actions: Vec<_> = case.see(1, alive(Health::Pending)).actions().into_iter().filter(ends).collect();
            assert_eq!(actions, vec![], "{state:?}");
        }
    }
}

#[test]
fn a_later_start_of_a_slot_that_is_over_is_accounted_for_too() {
    for asked in [ACCOUNT, STOP] {
        let wanted = newer(slot(1, asked, "GPU-a", 40));
        let case = Case::new(vec![wanted.clone()]).keep(&slot(1, RUN, "GPU-a", 40), gone(SlotEnd::Asked));
        let why = if asked == STOP { SlotEnd::Asked } else { SlotEnd::NoTrace };
        assert_eq!(case.actions(), vec![Action::RecordAbsence(Box::new(SlotRecord::of(&wanted, gone(why))))]);
    }
}

#[test]
fn n7_a_slot_whose_mark_is_carried_is_adopted_and_not_started() {
    let wanted = slot(1, RUN, "GPU-a", 40);
    let case = Case::new(vec![wanted.clone()]).find(1, found_start(1, Some(WorkloadKind::Lease)));
    let row = adopted(&case);
    assert_eq!(row.spec.as_ref(), wanted.run_spec());
    assert_eq!(row.state, started(false), "the server never heard that it serves, and where");
    let job = Case::new(vec![wanted.clone()]).find(1, found_start(1, Some(WorkloadKind::Job)));
    assert_eq!(adopted(&job).state, started(true), "a job has nothing to answer");
    // One that holds the memory already is not refused for want of memory.
    let mut full = case;
    full.devices[0].free = Some(Bytes::ZERO);
    assert_eq!(adopted(&full), row);
    let record = Case::new(vec![wanted]).keep_row(row).see(1, alive(Health::Pending));
    assert_eq!(record.actions(), vec![]);
}

#[test]
fn nothing_starts_on_a_device_beside_one_that_is_found_starting_there() {
    let wanted = vec![slot(1, RUN, "GPU-a", 10), slot(2, RUN, "GPU-a", 10), slot(3, RUN, "GPU-b", 10)];
    let actions = Case::new(wanted.clone()).find(1, found_start(1, None)).actions();
    assert!(matches!(actions[0], Action::Adopt(_)), "{actions:?}");
    assert_eq!(actions[1..], [Action::Start(Box::new(wanted[2].clone()))]);
}

#[test]
fn n7_an_older_start_that_is_not_on_record_is_put_there_and_ended_first() {
    let wanted = newer(slot(1, RUN, "GPU-a", 40));
    let case = Case::new(vec![wanted.clone()]).find(1, found_start(1, None));
    let row = adopted(&case);
    assert_eq!((row.generation, row.spec.clone(), row.gpus.len()), (Generation::new(1), None, 0));
    let record = Case::new(vec![wanted.clone()]).keep_row(row.clone()).see(1, alive(Health::Ready));
    assert_eq!(record.actions(), vec![Action::Term(id(1), SlotEnd::Asked)]);
    let over = SlotRecord { state: gone(SlotEnd::Asked), ..row };
    let record = Case::new(vec![wanted.clone()]).keep_row(over);
    assert_eq!(record.actions(), vec![Action::Start(Box::new(wanted))]);
}

#[test]
fn nothing_starts_while_the_search_failed() {
    let case = Case::new(vec![slot(1, RUN, "GPU-a", 40)]).find(1, SearchResult::Unknown("too many files".to_owned()));
    assert_eq!(case.actions(), vec![Action::NoteDoubt(id(1), doubt(&case, "too many files"))]);
    // What the driver lists besides is no reason against a start: it shows what is free.
    let listed = SearchResult::NotFound { doubt: Some("the driver lists process 7 on GPU-a".to_owned()) };
    let case = Case::new(vec![slot(1, RUN, "GPU-a", 40)]).find(1, listed);
    assert_eq!(case.actions(), vec![Action::Start(Box::new(slot(1, RUN, "GPU-a", 40)))]);
}

#[test]
fn marks_are_looked_for_only_if_a_start_is_about_to_happen() {
    let wanted = vec![slot(1, RUN, "GPU-a", 40), slot(2, RUN, "GPU-a", 30)];
    let case = Case::new(wanted.clone()).keep(&wanted[0], started(false)).see(1, alive(Health::Pending));
    assert_eq!(case.first_actions(), vec![], "it waits for its turn");
    let mut silent = Case::new(vec![slot(1, RUN, "GPU-a", 40)]);
    silent.devices[0].free = None;
    assert_eq!(silent.first_actions(), vec![], "it waits for the driver");
}

#[test]
fn a_slot_that_was_found_without_a_record_learns_how_it_is_run() {
    let wanted = slot(1, RUN, "GPU-a", 40);
    let orphan = SlotRecord { spec: None, gpus: Vec::new(), ..SlotRecord::of(&wanted, started(true)) };
    let case = Case::new(vec![wanted.clone()]).keep_row(orphan.clone()).see(1, alive(Health::Ready));
    assert_eq!(case.actions(), vec![Action::CompleteRecord(Box::new(wanted.clone()))]);
    let told = Case::new(vec![wanted.clone()]).keep(&wanted, started(true)).see(1, alive(Health::Ready));
    assert_eq!(told.actions(), vec![], "once");
    let asked = slot(1, ACCOUNT, "GPU-a", 40);
    let case = Case::new(vec![asked.clone()]).keep_row(orphan.clone()).see(1, alive(Health::Ready));
    assert_eq!(case.actions(), vec![Action::CompleteRecord(Box::new(asked))], "of which devices, at least");
    // Another start of it is run in another way.
    let other = Case::new(vec![newer(wanted)]).keep_row(orphan).see(1, alive(Health::Ready));
    assert_eq!(other.actions(), vec![Action::Term(id(1), SlotEnd::Asked)]);
}

#[test]
fn n8_an_old_wish_starts_nothing_and_stops_what_it_should() {
    let wanted = vec![slot(1, RUN, "GPU-a", 40), slot(2, STOP, "GPU-b", 10), slot(3, ACCOUNT, "GPU-b", 10)];
    let case = Case::new(wanted).keep(&slot(2, RUN, "GPU-b", 10), started(true)).see(2, alive(Health::Ready));
    let what = |case: &Case| -> (usize, usize, usize) {
        let actions = case.actions();
        let count = |is_it: fn(&Action) -> bool| actions.iter().filter(|action| is_it(action)).count();
        (
            count(|action| matches!(action, Action::Start(_) | Action::Search(_))),
            count(|action| matches!(action, Action::Term(..))),
            count(|action| matches!(action, Action::RecordAbsence(_))),
        )
    };
    assert_eq!(what(&case.clone().later(DesiredState::MAX_AGE)), (1, 1, 1));
    assert_eq!(what(&case.later(DesiredState::MAX_AGE + Duration::from_millis(1))), (0, 1, 1));
}

#[test]
fn what_cannot_be_put_on_record_is_not_started() {
    let mut case = Case::new(vec![slot(1, RUN, "GPU-a", 40), slot(2, STOP, "GPU-b", 10)]);
    case = case.keep(&slot(2, RUN, "GPU-b", 10), started(true)).see(2, alive(Health::Ready));
    case.can_record = false;
    assert_eq!(case.actions(), vec![Action::Term(id(2), SlotEnd::Asked)]);
}
