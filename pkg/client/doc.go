// SPDX-License-Identifier: Apache-2.0

// Package client is a typed client of weft's own kinds of objects (api/v1alpha1) for programs that are built on
// client-go. It is made by client-gen (`make generate`). weft's own programs do not use it: their agents follow and
// cache objects in another way (internal/cluster/store/kube).
package client
