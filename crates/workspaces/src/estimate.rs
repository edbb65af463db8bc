//! What unmeasured convolutions probably ask for.
//!
//! Answers of this module are estimates and must be reported as such.
