// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"os"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }
