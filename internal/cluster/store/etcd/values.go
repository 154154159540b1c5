// SPDX-License-Identifier: Apache-2.0

package etcd

import "context"

// Values reads the values of all keys with one of the prefixes, of another program's.
func Values(ctx context.Context, cfg Config, prefixes []string) (map[string]string, error) {
	r, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	out := map[string]string{}
	for _, prefix := range prefixes {
		kvs, err := objects{r}.read(ctx, get(prefix, true))
		if err != nil {
			return nil, err
		}
		for _, kv := range kvs {
			out[kv.key] = kv.value
		}
	}
	return out, nil
}
