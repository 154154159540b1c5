// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// Servers listen at free ports.
func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }
