//! Accounts drawn as bars.

use berth_wire::{CpuBalance, MemoryBalance};

use super::look::{Colour, Look};

/// How many characters a bar has between its brackets.
pub(crate) const WIDTH: usize = 40;

/// One kind of use, its sign and its colour. The signs differ, so that a bar says the same without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Held,
    Releasing,
    Promised,
    Foreign,
    Free,
    /// Not in use, and not to be had: the device takes nothing new.
    Closed,
}

impl Part {
    const ALL: [Self; 6] = [Self::Held, Self::Releasing, Self::Promised, Self::Foreign, Self::Free, Self::Closed];

    const fn sign(self) -> char {
        match self {
            Self::Held => '#',
            Self::Releasing => '/',
            Self::Promised => '+',
            Self::Foreign => 'x',
            Self::Free => '.',
            Self::Closed => '-',
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Releasing => "releasing",
            Self::Promised => "promised",
            Self::Foreign => "foreign",
            Self::Free => "free",
            Self::Closed => "not offered",
        }
    }

    const fn colour(self) -> Colour {
        match self {
            Self::Held => Colour::Green,
            Self::Releasing => Colour::Yellow,
            Self::Promised => Colour::Blue,
            Self::Foreign => Colour::Magenta,
            Self::Free | Self::Closed => Colour::Dim,
        }
    }
}

/// What each sign means.
pub(crate) fn legend(look: Look) -> String {
    let one = |part: &Part| format!("{} {}", look.paint(part.colour(), &part.sign().to_string()), part.word());
    let signs: Vec<String> = Part::ALL.iter().map(one).collect();
    format!("{}   ! more than there is\n", signs.join("   "))
}

/// The numbers of an account, whatever they count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) capacity: u64,
    pub(crate) held: u64,
    pub(crate) releasing: u64,
    pub(crate) promised: u64,
    pub(crate) foreign: u64,
    pub(crate) free: u64,
    /// Nothing new is taken: what is not in use is nobody's to have.
    pub(crate) closed: bool,
}

impl From<&MemoryBalance> for Account {
    fn from(balance: &MemoryBalance) -> Self {
        Self {
            capacity: balance.capacity_bytes.get(),
            held: balance.held_bytes.get(),
            releasing: balance.releasing_bytes.get(),
            promised: balance.promised_bytes.get(),
            foreign: balance.foreign_bytes.get(),
            free: balance.free_bytes.get(),
            closed: false,
        }
    }
}

impl From<&CpuBalance> for Account {
    fn from(balance: &CpuBalance) -> Self {
        Self {
            capacity: balance.capacity_millicores.get(),
            held: balance.held_millicores.get(),
            releasing: balance.releasing_millicores.get(),
            promised: balance.promised_millicores.get(),
            foreign: balance.foreign_millicores.get(),
            free: balance.free_millicores.get(),
            closed: false,
        }
    }
}

impl Account {
    /// What is in use at this moment, and what is left.
    pub(crate) fn now(&self, look: Look) -> String {
        let parts = [(Part::Held, self.held), (Part::Releasing, self.releasing), (Part::Foreign, self.foreign)];
        draw(&parts, self.rest(), self.capacity, look)
    }

    /// The same once everything that is releasing is gone and every promise is kept.
    pub(crate) fn then(&self, look: Look) -> String {
        let parts = [(Part::Held, self.held), (Part::Promised, self.promised), (Part::Foreign, self.foreign)];
        draw(&parts, self.rest(), self.capacity, look)
    }

    /// What is not in use.
    fn rest(&self) -> Part {
        if self.closed { Part::Closed } else { Part::Free }
    }

    /// The numbers in words; those that are nothing are left out, but for what is held and what is free.
    pub(crate) fn words(&self, unit: impl Fn(u64) -> String) -> String {
        let parts = [
            (Part::Held, self.held),
            (Part::Releasing, self.releasing),
            (Part::Promised, self.promised),
            (Part::Foreign, self.foreign),
            (Part::Free, self.free),
        ];
        let shown = |part: Part, amount: u64| amount > 0 || matches!(part, Part::Held | Part::Free);
        let words = parts.into_iter().filter(|(part, amount)| shown(*part, *amount));
        let words: Vec<String> = words.map(|(part, amount)| format!("{} {}", part.word(), unit(amount))).collect();
        format!("{} of {}", words.join(", "), unit(self.capacity))
    }
}

fn draw(parts: &[(Part, u64)], rest: Part, capacity: u64, look: Look) -> String {
    let used: u128 = parts.iter().map(|(_, amount)| u128::from(*amount)).sum();
    let over = used > u128::from(capacity);
    let amounts: Vec<u64> = parts.iter().map(|(_, amount)| *amount).collect();
    let cells = share(&amounts, capacity, WIDTH);
    let drawn: usize = cells.iter().sum();
    let mut text = String::from("[");
    for ((part, _), count) in parts.iter().zip(cells) {
        text.push_str(&look.paint(part.colour(), &part.sign().to_string().repeat(count)));
    }
    text.push_str(&look.paint(rest.colour(), &rest.sign().to_string().repeat(WIDTH - drawn)));
    text.push_str(if over { "!" } else { "]" });
    text
}

/// How many of `width` cells each amount gets. What is there gets at least one; the whole is the capacity, or all
/// amounts together where they are more; while anything is free, a cell stays free.
fn share(amounts: &[u64], capacity: u64, width: usize) -> Vec<usize> {
    let used: u128 = amounts.iter().map(|amount| u128::from(*amount)).sum();
    let whole = used.max(u128::from(capacity)).max(1);
    let exact = |amount: u64| u128::from(amount) * width as u128;
    let mut cells: Vec<usize> = amounts
        .iter()
        .map(|amount| {
            let rounded = (exact(*amount) + whole / 2) / whole;
            usize::try_from(rounded).unwrap_or(width).max(usize::from(*amount > 0))
        })
        .collect();
    let most = if used < u128::from(capacity) { width - 1 } else { width };
    // Rounding may have taken too many: the largest can spare them.
    while cells.iter().sum::<usize>() > most {
        let Some(largest) = cells.iter_mut().max_by_key(|count| **count) else { break };
        *largest = largest.saturating_sub(1);
    }
    // And where nothing is free, none may look free.
    if used >= u128::from(capacity)
        && used > 0
        && let missing @ 1.. = width - cells.iter().sum::<usize>()
        && let Some(largest) = cells.iter_mut().max_by_key(|count| **count)
    {
        *largest += missing;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Look = Look { colour: false, now: berth_domain::Timestamp::from_millis(0) };

    #[test]
    fn a_bar_shows_what_is_there() {
        let account =
            Account { capacity: 80, held: 40, releasing: 20, promised: 10, foreign: 1, free: 19, closed: false };
        assert_eq!(account.now(PLAIN), "[####################//////////x.........]");
        assert_eq!(account.then(PLAIN), "[####################+++++x..............]");
        assert_eq!(Account { capacity: 80, ..Account::default() }.now(PLAIN), format!("[{}]", ".".repeat(40)));
        let closed = Account { capacity: 80, held: 40, closed: true, ..Account::default() };
        assert_eq!(closed.now(PLAIN), format!("[{}{}]", "#".repeat(20), "-".repeat(20)), "nothing of it is free");
        assert_eq!(Account::default().now(PLAIN), format!("[{}]", ".".repeat(40)), "no capacity at all");
    }

    #[test]
    fn p16_more_than_there_is_ends_with_a_mark() {
        let account = Account { capacity: 80, held: 90, ..Account::default() };
        assert_eq!(account.now(PLAIN), format!("[{}!", "#".repeat(40)));
    }

    #[test]
    fn without_colours_nothing_is_lost() {
        let account =
            Account { capacity: 80, held: 40, releasing: 20, promised: 10, foreign: 1, free: 19, closed: false };
        let coloured = account.now(Look { colour: true, ..PLAIN });
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once("\x1b[") {
            plain.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert_eq!(plain, account.now(PLAIN));
        assert_ne!(coloured, plain);
    }

    proptest! {
        #[test]
        fn cells_are_never_too_many_and_none_is_forgotten(
            amounts in proptest::collection::vec(prop_oneof![Just(0u64), any::<u64>(), 1u64..100], 3),
            capacity in prop_oneof![any::<u64>(), 0u64..200],
        ) {
            let cells = share(&amounts, capacity, WIDTH);
            let (drawn, used) = (cells.iter().sum::<usize>(), amounts.iter().map(|a| u128::from(*a)).sum::<u128>());
            prop_assert!(drawn <= WIDTH);
            for (amount, count) in amounts.iter().zip(&cells) {
                prop_assert_eq!(*amount > 0, *count > 0);
            }
            if used >= u128::from(capacity) && used > 0 {
                prop_assert_eq!(drawn, WIDTH, "nothing is free");
            }
            if used < u128::from(capacity) {
                prop_assert!(drawn < WIDTH, "something is free");
            }
        }
    }
}
