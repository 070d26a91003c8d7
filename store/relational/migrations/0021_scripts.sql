-- The calls that one script made, whichever tools they went to.
CREATE INDEX reservations_scripts ON reservations (tenant, principal, substr(key, 1, 39)) WHERE substr(key, 1, 7) = 'script_';
