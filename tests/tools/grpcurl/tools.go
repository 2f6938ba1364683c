//go:build tools

// Package tools names the grpcurl that the tests build, so that its version and hashes are pinned beside it.
// A newer one: go get github.com/fullstorydev/grpcurl@latest && go mod tidy.
package tools

import _ "github.com/fullstorydev/grpcurl/cmd/grpcurl"
