// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"os"

	"github.com/weft-net/weft/internal/cluster/config"
)

// UsualConfig is where the manifests mount the configuration.
const UsualConfig = "/etc/weft/weft.yaml"

// This is the node as its agent runs; without an agent, as the configuration describes it.
func This(ctx context.Context, file, socket string) (Node, error) {
	c, source := config.Default(), "the defaults"
	_, err := os.Stat(UsualConfig)
	if file == "" && err == nil {
		file = UsualConfig
	}
	if file != "" {
		if c, err = config.Load(file); err != nil {
			return Node{}, err
		}
		source = file
	}
	if socket != "" {
		c.Socket, source = socket, source+" and --socket"
	}
	return Ask(ctx, c, source), nil
}
