//! Pages for browsers: the home page, the documentation and the console, all embedded. Nothing here knows the server.

mod cached;
mod console;
mod documentation;
mod html;
mod session_cookie;
mod widget;

pub use cached::{by_accept, cached_text};
pub use console::{HAS_CONSOLE, console_page};
pub use documentation::{DOCUMENTATION, DocumentationPage, documentation_list, llms_text};
pub use html::{ConsoleLink, HtmlPage, prefers_html};
pub use session_cookie::{session_cookie, set_session_cookie, set_sign_in_cookie, sign_in_cookie};
pub use widget::{widget_about, widget_script};
