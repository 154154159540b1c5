// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds weft's own kinds of Kubernetes objects, group weft.dev: for clients that read or write them, and as
// the source of deploy/crds. weft itself works with the model's values (internal/cluster/store converts them).
package v1alpha1

// Group and Version name the API.
const (
	Group   = "weft.dev"
	Version = "v1alpha1"
)
