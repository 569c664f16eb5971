//! The application in force. A reload of the configuration replaces it; turns keep the one that they started with.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::Application;

/// The application that new turns use. Cheap to clone.
#[derive(Clone)]
pub struct CurrentApplication(Arc<ArcSwap<Application>>);

impl CurrentApplication {
    /// Starts with this application.
    pub fn new(application: Arc<Application>) -> Self {
        Self(Arc::new(ArcSwap::new(application)))
    }

    /// The application in force.
    pub fn load(&self) -> Arc<Application> {
        self.0.load_full()
    }

    /// Replaces the application for new turns.
    pub fn replace(&self, application: Arc<Application>) {
        self.0.store(application);
    }

    /// A reference that does not keep the application alive.
    pub(crate) fn downgrade(&self) -> WeakApplication {
        WeakApplication(Arc::downgrade(&self.0))
    }
}

/// A reference to the application in force that does not keep it alive.
#[derive(Clone)]
pub(crate) struct WeakApplication(Weak<ArcSwap<Application>>);

impl WeakApplication {
    /// The application in force, unless the process is ending.
    pub(crate) fn load(&self) -> Option<Arc<Application>> {
        Some(self.0.upgrade()?.load_full())
    }
}
