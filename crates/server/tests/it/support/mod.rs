//! Support shared by the tests that run the real binary.

mod http_client;
mod instance;
mod process;
mod random;
mod table_reads;
mod write_load;

pub(crate) use http_client::{HttpClient, HttpResponse};
pub(crate) use instance::{TestInstance, execute_on, postgres_server};
pub(crate) use process::{
    GableCommand, ProcessOutput, ROOT_PASSWORD, ROOT_TOKEN, ServerProcess, UNLIMITED, WAIT_TIMEOUT,
};
pub(crate) use random::Rng;
pub(crate) use table_reads::{TableReads, reads_of};
pub(crate) use write_load::{Acknowledgement, WriteLoad};
