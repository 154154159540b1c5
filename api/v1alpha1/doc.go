// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds weft's own kinds of Kubernetes objects, group weft.dev: for clients that read or write them,
// and as the source of deploy/crds, of the deep copies here and of pkg/client, which controller-gen and client-gen make
// from the types and their markers (`make generate`). weft decodes them in internal/cluster/store, and works with the
// model's values.
//
// +groupName=weft.dev
// +kubebuilder:object:generate=true
package v1alpha1

// Group and Version name the API.
const (
	Group   = "weft.dev"
	Version = "v1alpha1"
)
