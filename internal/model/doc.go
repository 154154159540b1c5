// SPDX-License-Identifier: Apache-2.0

// Package model holds the cluster's nouns as plain values: nodes, pods, networks, attachments. Nothing here touches a
// kernel, a file or an API server, and nothing here knows Kubernetes' or CNI's own types.
package model
