// SPDX-License-Identifier: Apache-2.0

// Package store is the interface of datastores with the cluster's objects, and converts the objects that weft uses into
// the model's values. The datastores are packages below this one: kube, etcd and dir, a directory of manifests.
//
// # Vocabulary
//
//   - Object: one Kubernetes object of any kind, as JSON. Objects of unknown kinds are not changed.
//   - Version: what compare-and-swap compares. By default it is a hash of the content, so an object that was changed
//     and changed back has its old version again.
//   - Problem: an error of one object or file. It is reported, and everything else continues.
//
// Nodes, pods and namespaces are decoded with small structs: importing k8s.io/api/core/v1 for three kinds costs 7 MB of
// resident memory and 9 MB of binary size (measured), and the agent's limit is 30 MB.
package store
