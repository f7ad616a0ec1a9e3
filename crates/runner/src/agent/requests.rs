//! Requests of the server beside slots. Each request has a task of its own: a slow reader delays no round.

use std::collections::BTreeMap;
use std::io;

use berth_client::{Client, ClientError, Upload};
use berth_domain::RunnerId;
use berth_domain::estimate::{Answer, Question};
use berth_estimate::Reader;
use berth_wire::{AgentRequest, Problem, ProblemCode, RequestId, RequestKind};
use tokio::task::JoinHandle;

use super::config::AgentSettings;
use super::slots::Slots;
use crate::process::{Chunk, Follower, RedactedPieces, Redactor, SlotLog};

/// How many requests are answered at once. The server repeats the others.
const MAX_AT_ONCE: usize = 16;

/// The answers that are under way.
pub(super) struct RequestAnswers {
    client: Client,
    runner: RunnerId,
    tasks: BTreeMap<RequestId, JoinHandle<()>>,
}

impl RequestAnswers {
    pub(super) fn new(client: Client, runner: RunnerId) -> Self {
        Self { client, runner, tasks: BTreeMap::new() }
    }

    /// Begins to answer the requests that are not being answered yet.
    pub(super) fn answer(
        &mut self,
        requests: Vec<AgentRequest>,
        slots: &Slots,
        settings: &AgentSettings,
        redactor: impl Fn() -> Redactor,
    ) {
        for request in requests {
            if self.may_answer(request.id) {
                let response = respond(&request.kind, slots, settings, &redactor);
                self.spawn(request.id, response);
            }
        }
    }

    /// Returns whether one more request may be answered, and this one is not being answered already.
    fn may_answer(&mut self, id: RequestId) -> bool {
        self.tasks.retain(|_, task| !task.is_finished());
        self.tasks.len() < MAX_AT_ONCE && !self.tasks.contains_key(&id)
    }

    fn spawn(&mut self, id: RequestId, response: Response) {
        let (client, runner) = (self.client.clone(), self.runner.clone());
        let answering = async move {
            let answered = match response {
                Response::Log { log, tail_bytes, follow, redactor } => {
                    send_log(&client, &runner, id, &log, tail_bytes, follow, redactor.pieces()).await
                }
                Response::Files { reader, question } => {
                    match tokio::task::spawn_blocking(move || read_files(&reader, &question)).await {
                        Ok(answer) => client.answer_with_json(&runner, id, &answer).await,
                        // The task was aborted: the server no longer waits for it.
                        Err(_) => Ok(()),
                    }
                }
                Response::Problem(problem) => client.answer_with_problem(&runner, id, &problem).await,
            };
            match answered {
                Ok(()) => {}
                // Readers of logs may disconnect at any time.
                Err(error) if error.is_code(ProblemCode::ReaderLeft) || error.is_code(ProblemCode::UnknownRequest) => {}
                Err(error) => tracing::warn!(request = %id, %error, "a request was not answered in full"),
            }
        };
        self.tasks.insert(id, tokio::spawn(answering));
    }
}

impl Drop for RequestAnswers {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }
}

/// What a request is answered with.
enum Response {
    Log {
        log: SlotLog,
        tail_bytes: u64,
        follow: bool,
        redactor: Redactor,
    },
    /// Files to read.
    Files {
        reader: Reader,
        question: Box<Question>,
    },
    Problem(Box<Problem>),
}

impl Response {
    fn problem(status: u16, code: &str, detail: impl Into<String>) -> Self {
        Self::Problem(Box::new(Problem::new(status, code, "No", detail)))
    }
}

fn respond(kind: &RequestKind, slots: &Slots, settings: &AgentSettings, redactor: impl Fn() -> Redactor) -> Response {
    match *kind {
        RequestKind::Estimate { ref question } => {
            let reader = Reader {
                who: format!("runner {}", settings.id),
                setting: "agent.model_dirs",
                directories: settings.model_dirs.clone(),
            };
            Response::Files { reader, question: question.clone() }
        }
        RequestKind::Logs { slot_id, generation, tail_bytes, follow } => match slots.find_log(slot_id, generation) {
            Ok(Some(log)) => Response::Log { log, tail_bytes, follow, redactor: redactor() },
            Ok(None) => Response::problem(404, "no_log", format!("there is no log of slot {slot_id}, or no longer")),
            Err(error) => Response::problem(500, "unreadable", format!("the log of slot {slot_id}: {error}")),
        },
        RequestKind::Unknown => Response::problem(501, "unsupported", "this version of the agent does not know how to"),
    }
}

fn read_files(reader: &Reader, question: &Question) -> Answer {
    match reader.answer(question) {
        Ok(estimate) => Answer::Found(Box::new(estimate)),
        Err(refusal) => Answer::Refused(refusal),
    }
}

/// Sends the log of a slot, and what it writes until it is gone if the log is followed.
async fn send_log(
    client: &Client,
    runner: &RunnerId,
    id: RequestId,
    log: &SlotLog,
    tail_bytes: u64,
    follow: bool,
    pieces: RedactedPieces,
) -> Result<(), ClientError> {
    let (upload, sending) = client.answer_with_bytes(runner, id);
    let reading = async {
        match log.follow(tail_bytes) {
            Ok(follower) => read(follower, upload, follow, pieces).await,
            Err(error) => Err(error),
        }
    };
    tokio::pin!(sending, reading);
    tokio::select! {
        // The server has enough.
        sent = &mut sending => sent,
        read = &mut reading => {
            if let Err(error) = read {
                tracing::warn!(request = %id, %error, "a log cannot be read");
            }
            sending.await
        }
    }
}

async fn read(mut follower: Follower, mut upload: Upload, follow: bool, mut pieces: RedactedPieces) -> io::Result<()> {
    loop {
        let next = if follow { follower.next().await? } else { follower.next_before_end()? };
        let Some(chunk) = next else {
            let rest = pieces.finish();
            if !rest.is_empty() {
                upload.send(rest).await;
            }
            return Ok(());
        };
        let shown = text(chunk, &mut pieces);
        if !shown.is_empty() && !upload.send(shown).await {
            return Ok(());
        }
    }
}

/// Redacts a chunk, and marks where bytes are missing.
fn text(chunk: Chunk, pieces: &mut RedactedPieces) -> Vec<u8> {
    match chunk.lost {
        0 => pieces.push(chunk.bytes),
        lost => {
            let before = pieces.finish();
            let gap = format!("\n[berth: {lost} bytes are missing here]\n").into_bytes();
            [before, gap, pieces.push(chunk.bytes)].concat()
        }
    }
}
