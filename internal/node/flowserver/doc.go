// SPDX-License-Identifier: Apache-2.0

// Package flowserver serves an agent's flows over TLS to users to which Kubernetes grants the right to see them, without
// the right to execute programs in the agent's pod.
//
// A caller sends a bearer token, which the API server checks (TokenReview), and sees the flows of namespaces in which it
// may get flows.weft.dev (SubjectAccessReview): those with one end there at least. The name of the other end and its
// policies are removed if its namespace is not among them. What the API server does not answer is not allowed.
//
// The key is created when the agent starts. Its hash is published in an annotation of the agent's own Node, which no other
// agent may write, so that there are no certificates that expire or have to be distributed.
package flowserver
