// SPDX-License-Identifier: Apache-2.0

// Package model has the cluster's objects as plain values: nodes, pods, networks, attachments. It has no access to the
// kernel, files or an API server, and does not import Kubernetes' or CNI's types.
package model
