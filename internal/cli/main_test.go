// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestMain runs the tests in a network namespace, in which no other process uses the ports.
func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }
