//! The cluster around the API server: controllers, scheduler and the fake kubelet in virtual time, the real kubelet and
//! the assembled sandbox in real time.

mod controllers;
mod deletion;
mod faults;
mod kubelet;
mod nodes;
mod sandbox;
mod support;
