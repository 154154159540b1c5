// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/model"
)

// daemon is "dhcp daemon", which the reference plugin has in the same program.
func daemon(ctx context.Context, env Env) int {
	ctx, stop := env.Notify(ctx)
	defer stop()
	err := lease.Command(ctx, env.Args[1:], lease.Outside{
		Name: "weft dhcp daemon", Getenv: env.Getenv, Stderr: env.Stderr, Now: env.Now, Random: rand.Reader,
	})
	if err == nil {
		return 0
	}
	msg, hint := err.Error(), ""
	var fault *model.Fault
	if errors.As(err, &fault) && fault.Hint != "" {
		msg, hint = strings.TrimSuffix(msg, " ("+fault.Hint+")"), "hint: "+fault.Hint+"\n"
	}
	fmt.Fprintf(env.Stderr, "weft: %s\n%s", msg, hint)
	if errors.Is(err, lease.ErrUsage) {
		return 2
	}
	return 1
}
