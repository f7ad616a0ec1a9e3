//! The codes of problems: each with its HTTP status and its meaning, in one table.

use std::fmt;

/// Declares [`ProblemCode`] from one table, so that a code cannot exist without its status and its meaning.
macro_rules! problem_codes {
    ($($variant:ident = $code:literal, $status:literal, $meaning:literal;)+) => {
        /// The stable code of a [`Problem`](crate::Problem).
        ///
        /// A code never changes its meaning. `docs/API.md` lists all of them; its table is made by [`ProblemCode::table`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ProblemCode {
            $(#[doc = $meaning] $variant,)+
        }

        impl ProblemCode {
            /// Every code, ordered by status.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the code as it stands in a problem.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// Returns the HTTP status of a problem with this code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// Returns what the code means, in one sentence for people.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }

            /// Finds a code by its text. A newer server may send a code that this version does not know.
            #[must_use]
            pub fn from_text(text: &str) -> Option<Self> {
                match text {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

problem_codes! {
    MalformedJson = "malformed_json", 400, "the body is not JSON, or is nested too deeply";
    BodyCutOff = "body_cut_off", 400, "the body ended before it was complete";
    Unauthenticated = "unauthenticated", 401, "no token, or a wrong one";
    TokenExpired = "token_expired", 401, "the token was good until the time that the answer names";
    CertificateRequired = "certificate_required", 403, "a runner's token, or a join token, came on a connection without a client certificate (`tls.client_ca`)";
    CertificateOfAnother = "certificate_of_another", 403, "the client certificate does not name the runner";
    CertificateOutdated = "certificate_outdated", 403, "the client certificate has expired since, or its authority was replaced";
    OutsideGrant = "outside_grant", 403, "an agent says more of its runner than its token grants, or a join token is for another runner";
    OverLimit = "over_limit", 403, "a priority, a tenant or as many bytes of job arguments as this token may not ask for";
    JoinTokenUsedUp = "join_token_used_up", 403, "as many runners joined with it as may";
    Forbidden = "forbidden", 403, "a token of another role, or of another runner";
    NotLoopback = "not_loopback", 403, "a server without tokens was asked under a name that is not loopback";
    UnknownWorkload = "unknown_workload", 404, "there is no workload of that id, or the caller may not see it";
    UnknownModel = "unknown_model", 404, "there is no model of that name (422 when it is submitted)";
    UnknownRunner = "unknown_runner", 404, "there is no runner of that id";
    UnknownDevice = "unknown_device", 404, "there is no device of that UUID";
    UnknownSlot = "unknown_slot", 404, "there is no slot of that id";
    UnknownToken = "unknown_token", 404, "there is no token of that id";
    UnknownRequest = "unknown_request", 404, "the server asked nothing under this id of this agent, or no longer waits for the answer";
    NoLog = "no_log", 404, "the agent has no log of that slot, or no longer; or the workload has no such attempt";
    UnknownRoute = "unknown_route", 404, "no such path";
    NotReported = "not_reported", 404, "the runner has not reported since the server started";
    WrongMethod = "wrong_method", 405, "the path does not take this method";
    BodyTimeout = "body_timeout", 408, "the body did not arrive in time";
    KeyReused = "key_reused", 409, "the idempotency key was used with another body";
    WorkloadIdTaken = "workload_id_taken", 409, "the id of the new workload is taken: try again";
    WorkloadEnded = "workload_ended", 409, "the workload has ended, and an end never changes";
    StaleAttempt = "stale_attempt", 409, "the workload is at another attempt";
    NotRunning = "not_running", 409, "the workload does not run";
    ProtocolMismatch = "protocol_mismatch", 409, "the agent speaks another protocol than this server: upgrade the older of the two; nothing is started or stopped until then";
    Superseded = "superseded", 409, "a newer start of the agent has registered; this one must not register again";
    NotRegistered = "not_registered", 409, "the agent must register first";
    OldBoot = "old_boot", 409, "the machine was rebooted since";
    OldReport = "old_report", 409, "a newer report came before";
    MachineChanged = "machine_changed", 409, "the runner has slots on another machine";
    RunnerInUse = "runner_in_use", 409, "drain it first, or wait until it is lost";
    WrongSlotState = "wrong_slot_state", 409, "the slot is in a state in which this cannot be done";
    HasSlots = "has_slots", 409, "the runner has slots: it cannot be put on another machine before they are gone";
    HistoryIsWhole = "history_is_whole", 409, "the server's history did not go back: there is nothing to continue";
    OtherCluster = "other_cluster", 409, "the agent belongs to another cluster";
    RequestTaken = "request_taken", 409, "the agent answers this already";
    ReaderLeft = "reader_left", 409, "the client that asked for this answer of an agent has gone";
    NoAdminLeft = "no_admin_left", 409, "the first token, and the last one, must be an admin's";
    NameTaken = "name_taken", 409, "there is a token of that name";
    RunnerKnown = "runner_known", 409, "a runner of that id is part of the fleet: only a join token for exactly that runner takes its place";
    NoTokens = "no_tokens", 409, "the server runs without tokens, so there is none to exchange or to rotate";
    BodyTooLarge = "body_too_large", 413, "more than `limits.body` (or `limits.report`), or more than an agent was asked for";
    UnsupportedMediaType = "unsupported_media_type", 415, "not `application/json`";
    ReportTooLarge = "report_too_large", 422, "a runner reports more GPUs, or more slots that the server does not know, than `scheduler.devices_per_runner` and `unknown_slots_per_runner` allow";
    InvalidField = "invalid_field", 422, "a field, a parameter, a header or a name is wrong; `field` says which";
    InvalidModel = "invalid_model", 422, "the catalogue entry contradicts itself";
    UnfitModel = "unfit_model", 422, "the engine of its runtime could not start the model: no model named, more GPUs than it takes, a value that it ignores";
    ForbiddenArgument = "forbidden_argument", 422, "an argument of the model or the job may not reach the engine; the text says which and what to do";
    ImplausibleReport = "implausible_report", 422, "the report describes a machine that cannot exist";
    ReasonMissing = "reason_missing", 422, "an operator must give a reason: it goes on record";
    NeverFits = "never_fits", 422, "no runner is large enough, even when empty";
    UnknownMemory = "unknown_memory", 422, "the model does not say how much memory it needs";
    NoMatchingRunner = "no_matching_runner", 422, "no runner has its pool, labels, GPU names or UUIDs";
    RuntimeMissing = "runtime_missing", 422, "runners match, but none has its runtime";
    RuntimeNotForJobs = "runtime_not_for_jobs", 422, "it is a job, and every runner that has its runtime says that it is not for jobs (`kind = \"server\"`)";
    RuntimeOnlyForJobs = "runtime_only_for_jobs", 422, "it is a lease, and every runner that has its runtime says that it is for jobs only (`kind = \"job\"`)";
    OwnerLimit = "owner_limit", 429, "the submitter has as many workloads that wait, or that have a slot, as it may";
    QueueFull = "queue_full", 429, "the queue is full";
    RateLimited = "rate_limited", 429, "this client sends more requests than it may";
    TooManyStreams = "too_many_streams", 429, "as many requests without a token are under way on this HTTP/2 connection as may be (`limits.unauthenticated_streams`); the client sees the stream refused (`REFUSED_STREAM`), and may send it again";
    RunnerBusy = "runner_busy", 429, "as many read from this runner, or from all of them, as may (`limits.agent_requests`)";
    Internal = "internal", 500, "a bug in the server; its log says more";
    RunnerRefused = "runner_refused", 502, "the agent says why it cannot answer";
    BadAnswer = "bad_answer", 502, "the agent answered with something else than it was asked for";
    RunnerLost = "runner_lost", 503, "the runner was not heard of for long; what it has can be read once it is back";
    FilesUnavailable = "files_unavailable", 503, "the disk of a model's file did not answer in time";
    NoSpace = "no_space", 503, "the journal has no room; reading goes on, and so does whatever gives memory back";
    Busy = "busy", 503, "the queue of the writer is full: try again at once";
    Stopping = "stopping", 503, "the server shuts down";
    NotStarted = "not_started", 503, "the server is not ready yet";
    ServerUnreachable = "server_unreachable", 503, "a gateway that runs as a process of its own cannot reach its server";
    TokensUnavailable = "tokens_unavailable", 503, "the file of the tokens cannot be written";
    RunnerSilent = "runner_silent", 504, "the agent did not answer within `limits.agent_answer`: see whether it runs";
}

impl ProblemCode {
    /// Renders all codes as the table of `docs/API.md`.
    #[must_use]
    pub fn table() -> String {
        let mut table = String::from("| code | status | meaning |\n| --- | --- | --- |\n");
        for code in Self::ALL {
            table += &format!("| `{code}` | {} | {} |\n", code.status(), code.meaning());
        }
        table
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::ProblemCode;

    #[test]
    fn a_code_is_found_by_its_text_and_no_two_are_alike() {
        for code in ProblemCode::ALL {
            assert_eq!(ProblemCode::from_text(code.as_str()), Some(*code));
        }
        assert_eq!(ProblemCode::from_text("no_such_code"), None);
    }
}
