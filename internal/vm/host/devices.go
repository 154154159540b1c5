// SPDX-License-Identifier: Apache-2.0

package host

import "github.com/weft-net/weft/internal/vm/phase1"

func giveDevices(root string, r phase1.Record) error { return nil }
