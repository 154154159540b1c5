// SPDX-License-Identifier: Apache-2.0

// Package npa is the conformance suite of network-policy-api: its module, from which test/kube/build.sh compiles the
// suite's own tests.
package npa

import _ "sigs.k8s.io/network-policy-api/conformance"
