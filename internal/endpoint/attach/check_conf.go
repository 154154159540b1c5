// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/weft-net/weft/internal/kernel"
)

// checkConf compares the container with what its configuration says, when nothing is recorded, and adds to what differs.
func (c *checker) checkConf(ctx context.Context, job Job, spaces kernel.Spaces, diff []string) ([]string, error) {
	for _, conf := range job.Network.Plugins {
		p := c.catalog.can(conf).Check
		if p == nil {
			continue
		}
		in := c.catalog.input(conf, job.Request)
		in.Chain.Prev = job.Prev
		var err error
		if in.Answers, err = spaces.Observe(ctx, p.ExpectQueries(in)); err != nil {
			return nil, err
		}
		want, err := p.Expect(in)
		if err != nil {
			return nil, err
		}
		found, err := spaces.Diff(ctx, want)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			diff = append(diff, d.String())
		}
	}
	return diff, nil
}
