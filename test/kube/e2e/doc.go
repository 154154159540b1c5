// SPDX-License-Identifier: Apache-2.0

// Package e2e tests weft in a real Kubernetes: real API server, kubelets, containerd, runc and kube-proxy, in the
// namespaces that test/kube/cluster makes. `make e2e` runs it; without WEFT_E2E in the environment every test is
// skipped.
//
//	WEFT_E2E=1           run; a cluster e2e is created before and deleted after
//	WEFT_E2E_CLUSTER=N   use the existing cluster N
//	CALICO_SOURCE=R, MULTUS_SOURCE=R, WHEREABOUTS_SOURCE=R
//	                     other projects' repositories, for the tests of their files; without one its tests are skipped
//	WEFT_E2E_CNI=C       weft (as deploy/weft.yaml installs it), or reference: tests the harness, skips features of weft
//
// The tests act as a user: they run kubectl, and programs in pods.
package e2e
