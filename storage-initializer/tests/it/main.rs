//! Fetching over real sockets, from servers that break, change and refuse.

#[cfg(test)]
mod archives;
#[cfg(test)]
mod http;
#[cfg(test)]
mod local;
#[cfg(test)]
mod process;
#[cfg(test)]
mod s3;
#[cfg(test)]
mod support;
