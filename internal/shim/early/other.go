// SPDX-License-Identifier: Apache-2.0

//go:build !amd64 && !arm64

package early

import "github.com/weft-net/weft/internal/wire"

// Why is empty: nothing is done before the runtime starts on this processor.
func Why() wire.Error { return "" }
