// SPDX-License-Identifier: Apache-2.0

// Package deploy has the definitions of the kinds that a cluster needs. Its tests render the manifests, look at what they
// say and, where there is an API server, ask it.
package deploy

import _ "embed" // the manifests

//go:embed crds.yaml
var kinds string

//go:embed nad-crd.yaml
var networkAttachmentKind string

// Kinds are the definitions of weft's own kinds, as YAML documents.
func Kinds() string { return kinds }

// NetworkAttachmentKind is the definition of NetworkAttachmentDefinition, which belongs to the cluster if it has one.
func NetworkAttachmentKind() string { return networkAttachmentKind }
