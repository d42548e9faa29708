//! A certificate that vouches for itself, made on the spot.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
/// 1.3.101.112, the signature.
const ED25519: &[u8] = &[0x2b, 101, 112];
/// 2.5.4.3, the name of somebody.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 2.5.29.17, the names of a host.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];

/// A certificate and its key.
pub struct Certificate {
    der: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    /// One for hosts with these names or addresses, valid for longer than this code.
    pub fn of(hosts: &[&str]) -> Self {
        Self::until(hosts, "20991231235959Z")
    }

    /// One whose time is over.
    pub fn expired(hosts: &[&str]) -> Self {
        Self::until(hosts, "20200101000000Z")
    }

    fn until(hosts: &[&str], end: &str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the machine has a random source");
        let pair = Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("it was just made");
        let algorithm = part(SEQUENCE, &[&part(OID, &[ED25519])]);
        let name = part(SEQUENCE, &[&part(OID, &[COMMON_NAME]), &part(0x0c, &[b"A receiver"])]);
        let name = part(SEQUENCE, &[&part(0x31, &[&name])]);
        let moment = |text: &str| part(0x18, &[text.as_bytes()]);
        let names: Vec<Vec<u8>> = hosts
            .iter()
            .map(|host| match host.parse() {
                Ok(IpAddr::V4(address)) => part(0x87, &[&address.octets()]),
                Ok(IpAddr::V6(address)) => part(0x87, &[&address.octets()]),
                Err(_) => part(0x82, &[host.as_bytes()]),
            })
            .collect();
        let names = part(SEQUENCE, &[&names.concat()]);
        let extension = part(SEQUENCE, &[&part(OID, &[SUBJECT_ALT_NAME]), &part(0x04, &[&names])]);
        let said = part(
            SEQUENCE,
            &[
                // Version 3, number 1.
                &part(0xa0, &[&part(0x02, &[&[2]])]),
                &part(0x02, &[&[1]]),
                &algorithm,
                &name,
                &part(SEQUENCE, &[&moment("20190101000000Z"), &moment(end)]),
                &name,
                &part(SEQUENCE, &[&algorithm, &part(0x03, &[&[0], pair.public_key().as_ref()])]),
                &part(0xa3, &[&part(SEQUENCE, &[&extension])]),
            ],
        );
        let signature = part(0x03, &[&[0], pair.sign(&said).as_ref()]);
        Self { der: part(SEQUENCE, &[&said, &algorithm, &signature]), key: key.as_ref().to_vec() }
    }

    /// The certificate as DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The certificate as a file holds it.
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// Its key as a file holds it.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }
}

fn pem(what: &str, content: &[u8]) -> String {
    let text = STANDARD.encode(content);
    let lines: Vec<String> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}

/// A part of a certificate: what it is, how long, and what is in it.
fn part(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = u16::try_from(content.len()).expect("certificates are short").to_be_bytes();
    let mut part = vec![tag];
    match length {
        [0, low] if low < 0x80 => part.push(low),
        [0, low] => part.extend([0x81, low]),
        [high, low] => part.extend([0x82, high, low]),
    }
    part.extend(content);
    part
}
