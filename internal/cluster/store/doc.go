// SPDX-License-Identifier: Apache-2.0

// Package store holds the words for the place where the cluster's objects are kept, whichever place that is, and turns
// the objects that weft understands into the model's values. The places themselves are packages below this one; dir, a
// directory of manifests, is the first.
//
// # Vocabulary
//
//   - Object: one Kubernetes object of any kind, kept as JSON. Kinds that weft does not know are carried untouched.
//   - Version: what compare-and-swap compares. It is a hash of the content, so an object that was changed and changed
//     back has its old version again.
//   - Problem: something wrong with one object or file. It is told, and everything else goes on.
//
// Nodes, pods and namespaces are decoded with small structs of their own: importing k8s.io/api/core/v1 for three kinds
// costs 7 MB of resident memory and 9 MB of program (measured), and the agent has 30 MB in all.
package store
