//! `amalgam courses learners`: what single learners have of courses.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use amalgam_administration::{all_pages, courses::LearnerCourseView};
use amalgam_assistant::courses::{self, CourseFormat};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::TenantArgs;
use crate::command_context::{CommandContext, now_ms};
use crate::progress::Progress;
use crate::table::table;
use crate::terminal::{print_json, print_list, print_stderr, print_stdout};

/// How many rows one call writes.
const AT_ONCE: usize = 10_000;

#[derive(Debug, Args)]
pub(super) struct LearnersArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Import the rows of a file; a row replaces what the user has of the course
    Import {
        /// File with the columns user, course_id, status, progress, is_eligible and in_playlist, .csv or .json
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        common: TenantArgs,
    },
    /// List what learners have of courses
    List {
        /// Only of this user
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        common: TenantArgs,
    },
    /// Remove what a user has of one course, or of all
    Remove {
        /// User
        #[arg(value_name = "USER")]
        user: String,
        /// Only of this course
        #[arg(long, value_name = "COURSE_ID")]
        course: Option<String>,
        #[command(flatten)]
        common: TenantArgs,
    },
}

pub(super) async fn run(args: LearnersArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Import { file, common } => return import(&file, &common).await,
        Action::List { user, common } => {
            let (context, scope) = CommandContext::read_tenant(&common).await?;
            let administration = context.administration();
            let user = user.as_deref();
            let found = all_pages(async |page| administration.learner_courses(&scope, user, &page).await).await?;
            match common.json {
                true => print_list(&found)?,
                false => print_stdout(as_table(&found))?,
            }
        }
        Action::Remove { user, course, common } => {
            let (context, scope) = CommandContext::open_tenant(&common).await?;
            let administration = context.administration();
            let removed = match course {
                None => administration.delete_learner(&scope, &user).await?,
                Some(course) => administration.delete_learner_course(&scope, &user, &course).await.map(|_| 1)?,
            };
            match common.json {
                true => print_json(&json!({"user": user, "removed": removed}))?,
                false => print_stdout(format_args!("{removed} removed"))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Invalid rows make the command fail even if the valid ones were imported, so that scripts notice them.
async fn import(file: &std::path::Path, common: &TenantArgs) -> anyhow::Result<ExitCode> {
    let shown = file.display();
    let format = CourseFormat::of(file).with_context(|| format!("{shown} is neither .csv nor .json"))?;
    let bytes = fs::read(file).with_context(|| format!("reading {shown}"))?;
    let contents = courses::read_learners(&bytes, format, now_ms());
    let bad = contents.faults.len() + contents.omitted;
    let (context, scope) = CommandContext::open_tenant(common).await?;
    let mut progress = Progress::of("rows", contents.courses.len());
    let mut written = 0;
    for part in contents.courses.chunks(AT_ONCE) {
        let changes = context.administration().write_learner_courses(&scope, part.to_vec(), Vec::new()).await?;
        written += changes.written;
        progress.add(part.len());
    }
    drop(progress);
    match common.json {
        true => {
            let faults = contents.faults.iter();
            let faults: Vec<_> = faults.map(|fault| json!({"line": fault.line, "reason": fault.reason})).collect();
            print_json(&json!({"written": written, "bad": bad, "faults": faults}))?;
        }
        false => {
            contents.faults.iter().for_each(|fault| print_stderr(format_args!("{shown}: {fault}")));
            if contents.omitted > 0 {
                print_stderr(format_args!("{shown}: and {} more", contents.omitted));
            }
            print_stdout(format_args!("{written} written, {bad} bad"))?;
        }
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILURE) })
}

fn as_table(found: &[LearnerCourseView]) -> String {
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let row = |one: &LearnerCourseView| {
        [
            one.user.clone(),
            one.course_id.to_string(),
            text(one.status.clone()),
            text(one.progress.map(|progress| progress.to_string())),
            text(one.is_eligible.map(|eligible| eligible.to_string())),
            text(one.in_playlist.map(|listed| listed.to_string())),
        ]
    };
    let headings = ["user", "course", "status", "progress", "eligible", "in playlist"];
    table(headings, &found.iter().map(row).collect::<Vec<_>>())
}
