// SPDX-License-Identifier: Apache-2.0

// Package calico tests that weft takes a cluster over in which Calico serves: Calico's own plugin, IPAM and Felix, on a
// real API server with Calico's own kinds. `make takeover` builds them and runs it; it is skipped without
//
//	WEFT_CALICO_DIR=D   where build.sh has put Calico's programs and kinds
//
// What people do then, by docs/calico.md, the test does with the same commands.
package calico
