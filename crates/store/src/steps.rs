//! Decides which submissions to a session of the strict contract are run.
//!
//! The caller has locked the session: its state cannot change before the decision is written.

use amalgam_core::store::{AgentStep, AgentTurn, NewStep, StepState, TakenStep};
use amalgam_protocol::Status;

/// The state of a session when a submission arrives.
pub(crate) struct SessionState {
    /// The turn that it belongs to, if it was begun.
    pub(crate) turn: Option<AgentTurn>,
    /// The last step of the newest of the other turns.
    pub(crate) other: Option<OtherTurn>,
    /// Whether the transaction runs again: the same submission may have been written before, and its result was lost.
    pub(crate) is_repeated: bool,
}

/// A turn and the state of its last step.
pub(crate) struct OtherTurn {
    pub(crate) turn_id: String,
    pub(crate) number: u64,
    pub(crate) state: StepState,
}

/// The decision about a submission.
#[derive(Debug, PartialEq)]
pub(crate) enum StepDecision {
    /// There is nothing to run; this is the answer.
    Answer(TakenStep),
    /// The caller works on the step, after this is written; `None` if it was written before.
    Take(Option<StepWrite>),
}

/// A row to be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StepWrite {
    /// A new step.
    Add { turn: u64, step: u64 },
    /// The last step of a turn is taken again; the turn's number is `turn` from then on.
    Retake { before: u64, turn: u64, step: u64 },
}

impl StepWrite {
    /// Whether it adds a turn to the session.
    pub(crate) fn is_new_turn(&self) -> bool {
        matches!(self, Self::Add { step: 1, .. })
    }
}

/// The state of a step, from the status of its response, and whether the process that took it is alive.
pub(crate) fn state(status: Option<Status>, is_alive: bool) -> StepState {
    match status {
        Some(status) if status.is_final() => StepState::Ended(status),
        Some(_) => StepState::Running,
        None if is_alive => StepState::Running,
        None => StepState::Gone,
    }
}

/// Turns from their steps, each with the number and the id of its turn; the steps of a turn are adjacent and in order.
pub(crate) fn turns(steps: Vec<(u64, String, AgentStep)>) -> Vec<AgentTurn> {
    let mut turns: Vec<AgentTurn> = Vec::new();
    for (number, turn_id, step) in steps {
        match turns.last_mut() {
            Some(turn) if turn.number == number => turn.steps.push(step),
            _ => turns.push(AgentTurn { turn_id, number, steps: vec![step] }),
        }
    }
    turns
}

/// Decides on a submission to a session that exists.
pub(crate) fn decide(new: &NewStep, session: SessionState) -> StepDecision {
    match &new.follows {
        None => of_user(new, session),
        Some(follows) => of_tools(new, follows, session),
    }
}

fn of_user(new: &NewStep, session: SessionState) -> StepDecision {
    let SessionState { turn, other, is_repeated } = session;
    let last = other.as_ref().map_or(0, |other| other.number);
    let write = match turn {
        None => StepWrite::Add { turn: last + 1, step: 1 },
        Some(AgentTurn { number, mut steps, .. }) => {
            let (count, first) = (steps.len(), steps.swap_remove(0));
            if first.fingerprint != new.fingerprint {
                return StepDecision::Answer(TakenStep::Different);
            }
            if is_repeated && first.response_id == new.response_id {
                return StepDecision::Take(None);
            }
            if !is_free(first.state) || count > 1 {
                return StepDecision::Answer(TakenStep::Already(first));
            }
            // Other turns may have been added since; this one now follows them.
            StepWrite::Retake { before: number, turn: number.max(last + 1), step: 1 }
        }
    };
    match other {
        Some(OtherTurn { turn_id, state: StepState::Running, .. }) => StepDecision::Answer(TakenStep::Busy { turn_id }),
        _ => StepDecision::Take(Some(write)),
    }
}

fn of_tools(new: &NewStep, follows: &str, session: SessionState) -> StepDecision {
    let SessionState { turn, other, is_repeated } = session;
    let Some(AgentTurn { number, mut steps, .. }) = turn else { return StepDecision::Answer(TakenStep::Missing) };
    let last = steps.len() - 1;
    let is_newest = other.is_none_or(|other| other.number < number);
    let follows_step = |step: Option<&AgentStep>| step.is_some_and(|step| step.response_id == follows);
    // The newest first: a model may repeat the same call.
    let same = (1..=last).rev().find(|at| steps[*at].fingerprint == new.fingerprint);
    if let Some(at) = same {
        if is_repeated && steps[at].response_id == new.response_id {
            return StepDecision::Take(None);
        }
        if !is_free(steps[at].state) {
            return StepDecision::Answer(TakenStep::Already(steps.swap_remove(at)));
        }
        if at == last && is_newest && follows_step(steps.get(last - 1)) {
            let write = StepWrite::Retake { before: number, turn: number, step: last as u64 + 1 };
            return StepDecision::Take(Some(write));
        }
        return StepDecision::Answer(TakenStep::Different);
    }
    let waits = steps[last].state == StepState::Ended(Status::Completed) && follows_step(steps.get(last));
    match waits && is_newest {
        true => StepDecision::Take(Some(StepWrite::Add { turn: number, step: last as u64 + 2 })),
        false => StepDecision::Answer(TakenStep::Different),
    }
}

/// Whether a step may be taken again.
fn is_free(state: StepState) -> bool {
    matches!(state, StepState::Gone | StepState::Ended(Status::Failed))
}

#[cfg(test)]
mod tests {
    use amalgam_core::store::ProcessId;

    use super::*;
    use crate::rows;

    fn step(says: u8, response_id: &str, state: StepState) -> AgentStep {
        AgentStep {
            fingerprint: [says; 32],
            response_id: response_id.into(),
            mode: "general".into(),
            notes: rows::json("{}"),
            created_at_ms: 1,
            state,
        }
    }

    fn new(says: u8, follows: Option<&str>) -> NewStep {
        NewStep {
            session_id: "s".into(),
            turn_id: "t".into(),
            fingerprint: [says; 32],
            follows: follows.map(str::to_owned),
            response_id: "mine".into(),
            process: ProcessId(1),
            mode: "general".into(),
            notes: rows::json("{}"),
            solution_context: None,
            now_ms: 1,
        }
    }

    fn decided(
        new: &NewStep,
        steps: Vec<AgentStep>,
        other: Option<(u64, StepState)>,
        is_repeated: bool,
    ) -> StepDecision {
        let turn = (!steps.is_empty()).then(|| AgentTurn { turn_id: "t".into(), number: 3, steps });
        let other = other.map(|(number, state)| OtherTurn { turn_id: "o".into(), number, state });
        decide(new, SessionState { turn, other, is_repeated })
    }

    const DONE: StepState = StepState::Ended(Status::Completed);
    const FAILED: StepState = StepState::Ended(Status::Failed);

    #[test]
    fn the_state_of_a_step_follows_its_response_and_without_one_its_process() {
        for status in Status::ALL {
            for is_alive in [true, false] {
                let expected = if status.is_final() { StepState::Ended(status) } else { StepState::Running };
                assert_eq!(state(Some(status), is_alive), expected);
            }
        }
        assert_eq!((state(None, true), state(None, false)), (StepState::Running, StepState::Gone));
    }

    #[test]
    fn only_a_repeated_transaction_finds_its_own_step() {
        let own = |follows, before: Vec<AgentStep>, is_repeated| {
            let steps = before.into_iter().chain([step(1, "mine", StepState::Running)]).collect();
            decided(&new(1, follows), steps, None, is_repeated)
        };
        let first = StepDecision::Take(None);
        assert_eq!(own(None, Vec::new(), true), first);
        assert_eq!(own(Some("a"), vec![step(9, "a", DONE)], true), first);
        let already = StepDecision::Answer(TakenStep::Already(step(1, "mine", StepState::Running)));
        assert_eq!(own(None, Vec::new(), false), already);
        assert_eq!(own(Some("a"), vec![step(9, "a", DONE)], false), already);
    }

    #[test]
    fn a_step_that_is_retaken_moves_behind_other_turns_unless_it_continues_its_own() {
        let again = |number, other| {
            let write = StepWrite::Retake { before: 3, turn: number, step: 1 };
            let decision = decided(&new(1, None), vec![step(1, "a", FAILED)], other, false);
            assert_eq!(decision, StepDecision::Take(Some(write)));
        };
        again(3, None);
        again(3, Some((2, FAILED)));
        again(6, Some((5, FAILED)));
        let steps = || vec![step(9, "a", DONE), step(1, "b", FAILED)];
        let write = StepWrite::Retake { before: 3, turn: 3, step: 2 };
        let decision = decided(&new(1, Some("a")), steps(), Some((2, DONE)), false);
        assert_eq!(decision, StepDecision::Take(Some(write)));
        let abandoned = decided(&new(1, Some("a")), steps(), Some((4, DONE)), false);
        assert_eq!(abandoned, StepDecision::Answer(TakenStep::Different));
    }

    #[test]
    fn the_same_results_a_second_time_are_those_of_the_last_step_that_had_them() {
        // A model may repeat the same call under the same name.
        let steps = vec![step(9, "a", DONE), step(1, "b", DONE), step(1, "c", DONE)];
        let decision = decided(&new(1, Some("c")), steps, None, false);
        assert_eq!(decision, StepDecision::Answer(TakenStep::Already(step(1, "c", DONE))));
    }
}
