//! Packs in which each object is stored as a delta against the one before.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};
use gix::objs::Kind;
use model::Oid;

use super::Fixture;
use crate::{
    Error,
    checks::{PackCheck, check_packed_sizes},
    packs::{self, HEADERS, MAX_DELTA_CHAIN},
    repository::{gix_id, oid},
};

const BASE: &[u8] = b"the first of them\n";

/// The header of a pack entry: its type and its size.
fn head(kind: u8, size: usize) -> Vec<u8> {
    let low = |bits: usize, mask: usize| u8::try_from(bits & mask).expect("some bits");
    let mut head = vec![kind << 4 | low(size, 0xf)];
    let mut rest = size >> 4;
    while rest > 0 {
        *head.last_mut().expect("a byte") |= 0x80;
        head.push(low(rest, 0x7f));
        rest >>= 7;
    }
    head
}

/// A size in the encoding of deltas.
fn varint(mut size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(size & 0x7f).expect("seven bits");
        size >>= 7;
        if size == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).expect("written");
    encoder.finish().expect("deflated")
}

/// The object at this depth of the chain: each delta adds one byte at the end.
fn object(depth: usize) -> Vec<u8> {
    [BASE, &vec![b'x'; depth]].concat()
}

pub(super) fn id(depth: usize) -> Oid {
    oid(&gix::objs::compute_hash(gix::hash::Kind::Sha1, Kind::Blob, &object(depth)).expect("a digest"))
}

/// A repository with a pack of one blob and this many deltas, each against the one before.
pub(super) fn chain(depth: usize) -> Fixture {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend(u32::try_from(depth + 1).expect("a number").to_be_bytes());
    pack.extend([head(3, BASE.len()), deflate(BASE)].concat());
    for number in 1..=depth {
        let (old, new) = (BASE.len() + number - 1, BASE.len() + number);
        // Copies all of the base, and adds one byte.
        let copy = [0xb0, u8::try_from(old & 0xff).expect("a byte"), u8::try_from(old >> 8).expect("a byte")];
        let delta = [varint(old), varint(new), copy.to_vec(), vec![1, b'x']].concat();
        pack.extend(head(7, delta.len()));
        pack.extend(id(number - 1).0);
        pack.extend(deflate(&delta));
    }
    let mut digest = gix::hash::hasher(gix::hash::Kind::Sha1);
    digest.update(&pack);
    pack.extend(digest.try_finalize().expect("a digest").as_slice());
    let fixture = Fixture::new();
    fixture.git_with(&["index-pack", "--stdin"], &pack);
    fixture
}

#[test]
fn the_kind_of_an_object_takes_a_bounded_number_of_steps() {
    let fixture = chain(MAX_DELTA_CHAIN + 1);
    let repository = fixture.reopen();
    for depth in [0, 1, MAX_DELTA_CHAIN] {
        let size = object(depth).len() as u64;
        assert_eq!(repository.header(&gix_id(id(depth))).expect("a header"), Some((Kind::Blob, size)), "{depth}");
        assert_eq!(repository.kind(&gix_id(id(depth))).expect("a kind"), Some(Kind::Blob));
    }
    let deepest = id(MAX_DELTA_CHAIN + 1);
    for error in [
        repository.header(&gix_id(deepest)).map(drop).expect_err("too deep"),
        repository.blob_size(deepest).map(drop).expect_err("too deep"),
        repository.which_are_reachable(&[deepest]).map(drop).expect_err("too deep"),
    ] {
        let expected = format!("the object {deepest} is stored as a chain of more than 4096 deltas");
        assert!(matches!(&error, Error::TooLarge(text) if text.starts_with(&expected)), "{error}");
    }
    assert!(HEADERS.get() > 0);
}

#[test]
fn a_pack_with_long_chains_is_checked_in_linear_time_and_refused_beyond_the_limit() {
    let fixture = chain(MAX_DELTA_CHAIN);
    check_packed_sizes(&fixture.path().join("objects/pack")).expect("git itself makes such chains");
    let index = packs::indices(&fixture.path().join("objects/pack")).expect("a list").pop().expect("a pack");
    let steps = PackCheck::open(&index).expect("a pack").run().expect("checked");
    assert!(steps <= 2 * (MAX_DELTA_CHAIN + 1), "{steps} entries were read");

    let fixture = chain(MAX_DELTA_CHAIN + 1);
    let refused = check_packed_sizes(&fixture.path().join("objects/pack")).expect_err("refused");
    let expected = format!("the object {} is stored as a chain of more than 4096 deltas", id(MAX_DELTA_CHAIN + 1));
    assert!(matches!(&refused, Error::TooLarge(text) if text.starts_with(&expected)), "{refused}");
}
