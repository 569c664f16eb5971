//! Statements that are sent one behind the other without waiting for answers: many of them, one way to the server.
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
    /// How many are answered; answers come in the order of the statements.
    answered: usize,
    sent: bool,
}

enum Step<'a> {
    Waits(BoxFuture<'a, Result<Vec<Row>, Error>>),
    Answered(Result<Vec<Row>, Error>),
}

impl<'a> Pipeline<'a> {
    /// Adds a statement; where its rows will be.
    pub(super) fn push(&mut self, statement: impl Future<Output = Result<Vec<Row>, Error>> + Send + 'a) -> usize {
        self.statements.push(Step::Waits(Box::pin(statement)));
        self.statements.len() - 1
    }

    /// Sends them all and waits for all answers. The first failure is the cause of those behind it.
    pub(super) async fn run(mut self) -> Result<Vec<Vec<Row>>, PostgresFailure> {
        poll_fn(|context| self.poll(context)).await;
        let answers = self.statements.into_iter().map(|step| match step {
            Step::Answered(answer) => answer,
            Step::Waits(_) => Ok(Vec::new()),
        });
        Ok(answers.collect::<Result<_, Error>>()?)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // The driver sends a statement when it is first asked for the answer, so all are asked once, in their order. From
        // then on only the next one is worth asking.
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
