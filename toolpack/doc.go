// Package toolpack reads a domain package – its toolpacks (*.tool.yaml), manifest and image lock – and turns the
// arguments of a call into a canonical plan.
//
// Everything is checked when it is loaded, and every broken rule of the whole domain is reported at once with
// file, line, field and rule; a [Pack] is always valid and never changes. [Pack.Canonicalize] is the only way
// from arguments to a plan: arguments are checked against the pack's schema, artifact handles become checksums, the
// image name becomes a digest, and templates render inside one argv element each, never through a shell.
//
// Nouns: domain, manifest, pack (a toolpack that passed), pack_hash, image lock.
package toolpack
