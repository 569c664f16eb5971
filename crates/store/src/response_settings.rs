//! The settings of responses, which lists read without the items.

use amalgam_core::{
    Scope, Stem, StoreError,
    store::{ResponseSettingsStore, Stored},
};
use bytes::Bytes;

use crate::{
    SqlStore,
    engine::{Repeat, SqlConnection, SqlEngine},
    values::{SqlRow, values},
};

impl<E: SqlEngine> ResponseSettingsStore for SqlStore<E> {
    fn response_settings<'a>(&'a self, scope: &'a Scope, ids: Vec<String>) -> Stored<'a, Vec<Option<Bytes>>> {
        self.engine.read((scope.clone(), ids), |connection, (scope, ids)| {
            Box::pin(async move {
                let mut settings = Vec::with_capacity(ids.len());
                for id in ids.iter() {
                    let Some(stem) = Stem::of(id) else {
                        settings.push(None);
                        continue;
                    };
                    let statement = connection.sql().response_settings;
                    let query = connection.user(scope, statement, values![stem.as_str(), id]);
                    let read = |row: &dyn SqlRow| row.get::<String>(0).map(Bytes::from);
                    settings.push(query.first(read).await?);
                }
                Ok(settings)
            })
        })
    }

    fn replace_response_settings<'a>(&'a self, scope: &'a Scope, id: &'a str, settings: Bytes) -> Stored<'a, bool> {
        let Some(stem) = Stem::of(id) else { return Box::pin(async { Ok(false) }) };
        let arguments = (scope.clone(), stem, id.to_owned(), settings);
        self.engine.change(Repeat::Safe, arguments, |connection, (scope, stem, id, settings)| {
            Box::pin(async move {
                let text = std::str::from_utf8(settings)
                    .map_err(|_| StoreError::Broken("the settings of a response are not text".into()))?;
                let statement = connection.sql().replace_response_settings;
                Ok(connection.user(scope, statement, values![stem.as_str(), id, text]).run().await? == 1)
            })
        })
    }
}
