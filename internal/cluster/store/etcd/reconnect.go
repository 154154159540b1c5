// SPDX-License-Identifier: Apache-2.0

package etcd

// drop ends a connection that did not do; the next one is to another endpoint, if there is one.
func (r *Registry) drop(c *connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == c {
		r.conn = nil
		r.next++
		_ = c.Close()
	}
}

// Reconnect has the next request make a new connection. What is under way on the old one fails and is tried again.
func (r *Registry) Reconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}

// Close ends the connections. Leases stay.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}
