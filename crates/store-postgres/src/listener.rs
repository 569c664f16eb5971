//! Receives the notifications of other processes, on one connection, for as long as the store exists.
use std::{future::poll_fn, sync::Arc, time::Duration};

use amalgam_core::StoreError;
use amalgam_store::notifications::Notifications;
use tokio::time;
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Socket};
use tracing::{debug, warn};

use super::{
    connection::{Connector, PostgresFailure},
    tls::Session,
};

/// The pause between two attempts to reach a server that does not answer.
const PAUSE: Duration = Duration::from_millis(250);
/// The interval at which the connection is checked, and the time that it has to answer.
const CHECK: Duration = Duration::from_secs(10);

/// A connection that receives notifications.
pub(super) struct Listener {
    connector: Connector,
    notifications: Arc<Notifications>,
    client: Client,
    connection: Connection<Socket, Session>,
}

impl Listener {
    /// Starts to listen: no later notification is missed.
    pub(super) async fn open(connector: Connector, notifications: Arc<Notifications>) -> Result<Self, StoreError> {
        let (client, mut connection) = connector.open().await.map_err(|failure| connector.unavailable(failure))?;
        let begun = async {
            tokio::select! {
                begun = client.batch_execute("LISTEN amalgam_changed") => begun,
                ended = receive(&mut connection, &notifications) => ended,
            }
        };
        match time::timeout(CHECK, begun).await {
            Ok(begun) => begun.map_err(PostgresFailure::from)?,
            Err(_) => return Err(PostgresFailure::timed_out().into()),
        }
        Ok(Self { connector, notifications, client, connection })
    }

    /// Listens until it is dropped. A broken connection is replaced, and then all waiting tasks are woken, because
    /// notifications may have been missed.
    pub(super) async fn listen(mut self) {
        loop {
            let ended = tokio::select! {
                ended = receive(&mut self.connection, &self.notifications) => ended,
                ended = stay(&self.client) => ended,
            };
            match ended {
                Ok(()) => debug!("the connection for notifications is silent"),
                Err(error) => {
                    warn!("notifications of other processes are not received for now: {}", PostgresFailure::from(error))
                }
            }
            self = self.again().await;
            self.notifications.notify_all();
        }
    }

    async fn again(self) -> Self {
        loop {
            match Self::open(self.connector.clone(), Arc::clone(&self.notifications)).await {
                Ok(listener) => return listener,
                Err(_) => time::sleep(PAUSE).await,
            }
        }
    }
}

/// Drives the connection and passes on each notification, until the connection ends.
async fn receive(connection: &mut Connection<Socket, Session>, notifications: &Notifications) -> Result<(), Error> {
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(changed) = message? {
            notifications.notify([changed.payload()]);
        }
    }
    Ok(())
}

/// Checks the connection periodically; ends when the server does not answer.
async fn stay(client: &Client) -> Result<(), Error> {
    loop {
        time::sleep(CHECK).await;
        match time::timeout(CHECK, client.batch_execute("")).await {
            Ok(answered) => answered?,
            Err(_) => return Ok(()),
        }
    }
}
