// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) } // API servers listen at ports that no process else has
