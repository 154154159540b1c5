// SPDX-License-Identifier: Apache-2.0

// Package calico tests the migration of a cluster from Calico to weft: with Calico's plugin, IPAM and Felix, on a real
// API server with Calico's CRDs. `make takeover` builds them and runs the tests; they are skipped without
//
//	WEFT_CALICO_DIR=D   the directory of Calico's programs and CRDs, built by build.sh
//
// The test runs the commands of docs/tasks/migrate-from-calico.md.
package calico
