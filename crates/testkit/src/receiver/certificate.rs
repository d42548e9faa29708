//! Generates self-signed certificates.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
/// OID 1.3.101.112.
const ED25519: &[u8] = &[0x2b, 101, 112];
/// OID 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// OID 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];

/// A certificate and its key.
pub struct Certificate {
    der: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    /// A certificate for hosts with these names or addresses, valid until 2099.
    pub fn for_hosts(hosts: &[&str]) -> Self {
        Self::expiring_at(hosts, "20991231235959Z")
    }

    /// An expired certificate.
    pub fn expired(hosts: &[&str]) -> Self {
        Self::expiring_at(hosts, "20200101000000Z")
    }

    fn expiring_at(hosts: &[&str], end: &str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the machine has a random source");
        let key_pair = Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("it was just made");
        let algorithm = der_element(SEQUENCE, &[&der_element(OID, &[ED25519])]);
        let subject = der_element(SEQUENCE, &[&der_element(OID, &[COMMON_NAME]), &der_element(0x0c, &[b"A receiver"])]);
        let subject = der_element(SEQUENCE, &[&der_element(0x31, &[&subject])]);
        let time = |text: &str| der_element(0x18, &[text.as_bytes()]);
        let alt_names: Vec<Vec<u8>> = hosts
            .iter()
            .map(|host| match host.parse() {
                Ok(IpAddr::V4(address)) => der_element(0x87, &[&address.octets()]),
                Ok(IpAddr::V6(address)) => der_element(0x87, &[&address.octets()]),
                Err(_) => der_element(0x82, &[host.as_bytes()]),
            })
            .collect();
        let alt_names = der_element(SEQUENCE, &[&alt_names.concat()]);
        let extension =
            der_element(SEQUENCE, &[&der_element(OID, &[SUBJECT_ALT_NAME]), &der_element(0x04, &[&alt_names])]);
        let body = der_element(
            SEQUENCE,
            &[
                // Version 3, serial number 1.
                &der_element(0xa0, &[&der_element(0x02, &[&[2]])]),
                &der_element(0x02, &[&[1]]),
                &algorithm,
                &subject,
                &der_element(SEQUENCE, &[&time("20190101000000Z"), &time(end)]),
                &subject,
                &der_element(SEQUENCE, &[&algorithm, &der_element(0x03, &[&[0], key_pair.public_key().as_ref()])]),
                &der_element(0xa3, &[&der_element(SEQUENCE, &[&extension])]),
            ],
        );
        let signature = der_element(0x03, &[&[0], key_pair.sign(&body).as_ref()]);
        Self { der: der_element(SEQUENCE, &[&body, &algorithm, &signature]), key: key.as_ref().to_vec() }
    }

    /// Returns the certificate as DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the certificate as PEM.
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// Returns the key as PEM.
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

/// Encodes a DER element: tag, length and content.
fn der_element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = u16::try_from(content.len()).expect("certificates are short").to_be_bytes();
    let mut der_element = vec![tag];
    match length {
        [0, low] if low < 0x80 => der_element.push(low),
        [0, low] => der_element.extend([0x81, low]),
        [high, low] => der_element.extend([0x82, high, low]),
    }
    der_element.extend(content);
    der_element
}
