package adminapi

import "sallyport.dev/sallyport"

func (s *Server) loginServer(c call) (any, error) {
	var in LoginWish
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	return s.ServerLogins.BeginLogin(c.Context(), c.PathValue("name"), in, c.actor())
}

func (s *Server) logoutServer(c call) (any, error) {
	var in LoginWish
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	name := c.PathValue("name")
	return struct{}{}, s.ServerLogins.EndLogin(c.Context(), name, in, s.audited(c, "servers logout", name, in))
}

func (w LoginWish) check() error {
	if w.Agent != "" && w.User != "" {
		return &sallyport.Error{Code: sallyport.Invalid, Message: "a login is for an agent or for a user, not for both", Hint: "leave one of them out"}
	}
	return nil
}
