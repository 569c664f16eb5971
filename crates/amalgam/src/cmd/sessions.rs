//! `amalgam sessions`: the threads between a tenant's users and its assistants.

use std::process::ExitCode;

use amalgam_administration::{all_pages, sessions::SessionView};
use amalgam_core::store::{Order, Page};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::TenantArgs;
use crate::command_context::CommandContext;
use crate::table::{moment, table};
use crate::terminal::{print_json, print_list, print_object, print_stdout};

/// The newest messages that `show` prints.
const MESSAGES: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List a tenant's threads, newest first
    List {
        /// Only threads of this user
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        common: TenantArgs,
    },
    /// Close a thread: the user's next message begins another one
    Close {
        /// Session id
        #[arg(value_name = "SESSION_ID")]
        id: String,
        #[command(flatten)]
        common: TenantArgs,
    },
    /// Delete a thread with its messages and the responses of its turns
    Delete {
        /// Session id
        #[arg(value_name = "SESSION_ID")]
        id: String,
        #[command(flatten)]
        common: TenantArgs,
    },
    /// Print a thread with its newest messages, as JSON
    Show {
        /// Session id
        #[arg(value_name = "SESSION_ID")]
        id: String,
        #[command(flatten)]
        common: TenantArgs,
    },
}

pub(crate) async fn run(args: SessionsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { user, common } => {
            let (context, scope) = CommandContext::read_tenant(&common).await?;
            let administration = context.administration();
            let list = async |page: Page| administration.sessions(&scope, user.as_deref(), &page).await;
            let sessions = all_pages(list).await?;
            match common.json {
                true => print_list(&sessions)?,
                false => print_stdout(as_table(&sessions))?,
            }
        }
        Action::Close { id, common } => {
            let (context, scope) = CommandContext::open_tenant(&common).await?;
            let closed = context.administration().close_session(&scope, &id).await?;
            match common.json {
                true => print_object(&closed)?,
                false => print_stdout(format_args!("closed {id}"))?,
            }
        }
        Action::Delete { id, common } => {
            let (context, scope) = CommandContext::open_tenant(&common).await?;
            context.administration().delete_session(&scope, &id).await?;
            match common.json {
                true => print_json(&json!({"id": id, "deleted": true}))?,
                false => print_stdout(format_args!("deleted {id}"))?,
            }
        }
        Action::Show { id, common } => {
            let (context, scope) = CommandContext::read_tenant(&common).await?;
            let page = Page { after: None, limit: MESSAGES, order: Order::Descending };
            print_object(&context.administration().session(&scope, &id, &page).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_table(sessions: &[SessionView]) -> String {
    let row = |session: &SessionView| {
        [
            session.id.to_string(),
            session.user.clone(),
            session.profile.clone().unwrap_or_else(|| "-".to_owned()),
            session.status.to_owned(),
            session.message_count.to_string(),
            moment(Some(session.updated_at.to_ms())),
        ]
    };
    let headings = ["id", "user", "profile", "status", "messages", "updated"];
    table(headings, &sessions.iter().map(row).collect::<Vec<_>>())
}
