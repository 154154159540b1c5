// SPDX-License-Identifier: Apache-2.0

// Package bgp_test runs weft-bgp with its agent next to real BGP speakers, BIRD and FRR, in network namespaces.
package bgp_test

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }
