//! An S3 server with one bucket, for tests and development: `test-bucket FOLDER HOST:PORT`. It prints the variables that a
//! program needs to use it, and runs until it is killed.

use std::{env, path::Path, thread};

use testkit::bucket::TestBucket;

#[expect(clippy::print_stdout, reason = "the variables are the result of this program")]
fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, address] = arguments.as_slice() else { panic!("usage: test-bucket FOLDER HOST:PORT") };
    let server = TestBucket::start_in(Path::new(folder), address.parse().expect("HOST:PORT"));
    for (name, value) in server.variables() {
        println!("{name}={value}");
    }
    loop {
        thread::park();
    }
}
