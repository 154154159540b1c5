// SPDX-License-Identifier: Apache-2.0

// Package e2e tests weft in a real Kubernetes: real API server, kubelets, containerd, runc and kube-proxy, in the
// namespaces that test/kube/cluster makes. `make e2e` runs it; without WEFT_E2E in the environment every test is
// skipped.
//
//	WEFT_E2E=1           run; a cluster e2e is made before and taken down after
//	WEFT_E2E_CLUSTER=N   take the cluster N, which is there, and leave it
//	WEFT_E2E_CNI=C       weft (as deploy/weft.yaml installs it), or reference: proves the harness, skips what only weft does
//
// The tests do what a user does: they call kubectl, and programs in pods.
package e2e
