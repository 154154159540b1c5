// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/goflag"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
)

// daemon runs "dhcp daemon", as the reference plugin does.
func daemon(ctx context.Context, env Env) int {
	ctx, stop := env.Notify(ctx)
	defer stop()
	err := lease.Command(ctx, env.Args[1:], lease.Env{
		Name: "weft dhcp daemon", Getenv: env.Getenv, Stderr: env.Stderr, Now: env.Now, Random: rand.Reader,
	})
	if err == nil {
		return 0
	}
	fmt.Fprintf(env.Stderr, "weft: %s\n", goflag.Message(err))
	if errors.Is(err, lease.ErrUsage) {
		return 2
	}
	return 1
}
