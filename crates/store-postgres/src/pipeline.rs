//! Sends many statements in one round trip, without waiting for the answer to each.
use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use amalgam_core::BoxFuture;
use tokio_postgres::{Error, Row};

use super::connection::PostgresFailure;

/// Statements in the order in which they are sent.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    statements: Vec<Step<'a>>,
    /// The number of statements that were answered; answers arrive in the order of the statements.
    answered: usize,
    sent: bool,
}

enum Step<'a> {
    Waits(BoxFuture<'a, Result<Vec<Row>, Error>>),
    Answered(Result<Vec<Row>, Error>),
}

impl<'a> Pipeline<'a> {
    /// Adds a statement. Returns the position of its rows in the result.
    pub(super) fn push(&mut self, statement: impl Future<Output = Result<Vec<Row>, Error>> + Send + 'a) -> usize {
        self.statements.push(Step::Waits(Box::pin(statement)));
        self.statements.len() - 1
    }

    /// Sends all statements and waits for all answers. The first failure causes those after it.
    pub(super) async fn run(mut self) -> Result<Vec<Vec<Row>>, PostgresFailure> {
        poll_fn(|context| self.poll(context)).await;
        let answers = self.statements.into_iter().map(|step| match step {
            Step::Answered(answer) => answer,
            Step::Waits(_) => Ok(Vec::new()),
        });
        Ok(answers.collect::<Result<_, Error>>()?)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // The driver sends a statement when its answer is first polled, so all are polled once, in order. After that,
        // only the next answer has to be polled.
        let first = !std::mem::replace(&mut self.sent, true);
        for (at, step) in self.statements.iter_mut().enumerate().skip(self.answered) {
            if let Step::Waits(statement) = step
                && let Poll::Ready(answer) = statement.as_mut().poll(context)
            {
                *step = Step::Answered(answer);
            }
            match step {
                Step::Answered(_) if at == self.answered => self.answered += 1,
                Step::Waits(_) if !first => return Poll::Pending,
                _ => {}
            }
        }
        match self.answered == self.statements.len() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
