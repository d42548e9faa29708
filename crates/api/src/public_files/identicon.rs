//! Default avatars: a pattern of squares that depends only on the URL.

use std::fmt::Write as _;

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::plain_error;

/// Handles `GET /-/identicon/{16 hex digits}.svg`.
pub(crate) async fn get(name: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(name)) = name else { return plain_error(StatusCode::NOT_FOUND) };
    let seed = name.strip_suffix(".svg").filter(|digits| digits.len() == 16);
    let Some(seed) = seed.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
        return plain_error(StatusCode::NOT_FOUND);
    };
    let headers = [
        (header::CONTENT_TYPE, "image/svg+xml"),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, draw(seed)).into_response()
}

/// Draws five by five squares, the right half a mirror of the left.
fn draw(seed: u64) -> String {
    let hue = seed % 360;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 7 7\" width=\"80\" height=\"80\">\
         <rect width=\"7\" height=\"7\" fill=\"#f0f0f0\"/><g fill=\"hsl({hue} 55% 50%)\">"
    );
    for cell in 0..15_u64 {
        if seed >> (cell + 16) & 1 == 1 {
            let (column, row) = (cell / 5, cell % 5 + 1);
            for x in [1 + column, 5 - column] {
                let _ = write!(svg, "<rect x=\"{x}\" y=\"{row}\" width=\"1\" height=\"1\"/>");
            }
        }
    }
    svg.push_str("</g></svg>");
    svg
}
